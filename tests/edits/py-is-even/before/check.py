from numtools import is_even, is_positive

assert is_even(4) and is_even(0) and not is_even(3)
assert is_positive(1)

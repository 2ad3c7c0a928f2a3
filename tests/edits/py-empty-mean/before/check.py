from stats import largest, mean

assert mean([]) == 0.0
assert mean([1, 2, 3]) == 2.0
assert largest([1, 5, 2]) == 5

from lists import first_n

assert first_n([1, 2, 3, 4], 2) == [1, 2]
assert first_n([1], 5) == [1]
assert first_n([1, 2], 0) == []

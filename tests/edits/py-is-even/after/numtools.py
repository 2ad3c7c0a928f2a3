def is_positive(n):
    return n > 0


def is_even(n):
    return n % 2 == 0

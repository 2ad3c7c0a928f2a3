def first_n(items, n):
    result = []
    for index, item in enumerate(items):
        if index >= n:
            break
        result.append(item)
    return result

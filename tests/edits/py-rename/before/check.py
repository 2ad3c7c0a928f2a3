from shapes import Square

assert Square(3).area() == 9
assert Square(3).perimeter() == 12
assert not hasattr(Square, "size")

from greet import greet

assert greet("Ann") == "Hello, Ann!"
assert greet("Ann", "Hi") == "Hi, Ann!"
assert greet("Ann", greeting="Bye") == "Bye, Ann!"

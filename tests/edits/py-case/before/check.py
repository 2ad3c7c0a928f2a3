from words import count_words

assert count_words("The cat the dog") == {"the": 2, "cat": 1, "dog": 1}

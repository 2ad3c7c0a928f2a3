"""Makes all golden files of this folder anew. Needs PyPI `tokenizers`, `transformers`, `gguf`, `openai-harmony`; with
`--llama-cpp` also `xllamacpp`, to compare the ids of the GGUF vocabularies with llama.cpp's.
"""
import harmony
import ids
import prompts

for part in (ids, prompts, harmony):
    part.main()

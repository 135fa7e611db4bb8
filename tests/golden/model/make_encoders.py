# tests/golden/model/make_encoders.py: writes the tiny encoders beside this file. Run by hand, with transformers:
#   build/python/venv/bin/python tests/golden/model/make_encoders.py
import pathlib
import sys

import torch

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parents[2] / "python" / "tests"))
import encoders

torch.set_num_threads(1)
for name, folder in [("bert, a score", "bert"), ("roberta, padding of id 3", "roberta"), ("mpnet", "mpnet"),
                     ("distilbert, a score", "distilbert"), ("modernbert, a score of the mean", "modernbert")]:
    torch.manual_seed(3)
    encoders.write(here / "encoders" / folder, encoders.ENCODERS[name]())

# tests/golden/model/make_encoder_decoders.py: writes the tiny encoder-decoders beside this file. Run by hand, with
# transformers:
#   build/python/venv/bin/python tests/golden/model/make_encoder_decoders.py
import pathlib
import sys

import torch

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parents[2] / "python" / "tests"))
import encoder_decoders

torch.set_num_threads(1)
for name, folder in [("t5", "t5"), ("t5 1.1", "t5_1_1"), ("bart", "bart"), ("mbart", "mbart"), ("marian", "marian"),
                     ("marian, two tables", "marian_two"), ("m2m_100", "m2m_100"), ("pegasus", "pegasus")]:
    torch.manual_seed(3)
    encoder_decoders.write(here / "encoder_decoders" / folder, encoder_decoders.ENCODER_DECODERS[name]())

"""One stream over many processes: they adapt together, and the result is that of one process.

Run it with `torchrun --nproc-per-node 2 examples/torchrun.py`; plain `python` runs one process.
"""

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

import tapr

rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if size > 1:  # "nccl" on GPUs; a process that is gone for so long ends the others
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))

digits = tapr.datasets.load("digits")
stream = torch.from_numpy(digits.images[:512]).permute(0, 3, 1, 2).float().div(255)
assert digits.labels is not None
labels = torch.from_numpy(digits.labels[:512])
path = Path(os.environ.get("STATE", tempfile.mkdtemp())) / "state.safetensors"

# The same model, method and seed in every process. In a group they adapt together (sync="auto").
model = tapr.models.load("digits-small")
adapter = tapr.load(path, model) if path.exists() else tapr.adapt(model, "tent")

right = 0
for images, truth in zip(stream.chunk(8), labels.chunk(8), strict=True):
    own = slice(rank, None, size)  # each process has its own images, of whatever number
    right += int((adapter(images[own]).argmax(1) == truth[own]).sum())
    if rank == 0:
        adapter.save(path)  # all processes have this state; any number of them may resume from it

total = torch.tensor([right])
if size > 1:
    distributed.all_reduce(total)
    distributed.destroy_process_group()
if rank == 0:
    print(f"{size} processes, {int(total)} of {len(stream)} right")

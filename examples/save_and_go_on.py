"""Save the adapted state and go on elsewhere, as if nothing had happened.

Run it with `python examples/save_and_go_on.py`.
"""

import tempfile
from pathlib import Path

import torch

import tapr

model = tapr.models.load("digits-small")
digits = tapr.datasets.load("digits").images[:400]
batches = torch.from_numpy(digits).permute(0, 3, 1, 2).float().div(255).chunk(4)

adapter = tapr.adapt(model, "pest", lr=1e-3, seed=1)
for images in batches[:2]:
    adapter(images)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "state.safetensors"
    adapter.save(path)  # parameters, statistics, optimiser, generator, and the options
    print(f"saved {path.stat().st_size // 1024} KiB")
    elsewhere = tapr.load(path, model)  # in another process, with the same source model

here, there = adapter(batches[2]), elsewhere(batches[2])
print("the same logits, bit for bit:", torch.equal(here, there))
print("options came along:", {name: elsewhere.recipe[name] for name in ("method", "lr", "seed")})

elsewhere.reset()
fresh = tapr.adapt(model, "pest", lr=1e-3, seed=1)
print("reset is the source model:", torch.equal(elsewhere(batches[3]), fresh(batches[3])))

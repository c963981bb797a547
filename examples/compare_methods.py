"""Adapt a classifier while it predicts: trained on rendered digits, met by handwritten ones.

Needs no download. Run it with `.venv/bin/python examples/adapt_a_stream.py`.
"""

import torch

import tapr

model = tapr.models.load("digits-small")
digits = tapr.datasets.load("digits", split="test")
images = torch.from_numpy(digits.images[:1000]).permute(0, 3, 1, 2).float() / 255
assert digits.labels is not None
labels = torch.from_numpy(digits.labels[:1000])

print(tapr.check(model, images[:200]))
for method in ("source", "norm", "tent", "pest"):
    adapter = tapr.adapt(model, method)
    right = 0
    for start in range(0, len(images), 200):
        batch = slice(start, start + 200)
        guesses = adapter(images[batch]).argmax(1)
        right += int((guesses == labels[batch]).sum())  # labels only to keep the score
    print(f"{method:6s} {right / len(labels):.1%} of {len(labels)} right")

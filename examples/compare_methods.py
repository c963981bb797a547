"""Compare methods on your model: trained on rendered digits, met by handwritten ones.

Needs no download. Run it with `python examples/compare_methods.py`.
"""

import torch

import tapr

model = tapr.models.load("digits-small")  # any nn.Module from images in [0, 1] to logits
digits = tapr.datasets.load("digits", split="test")
assert digits.labels is not None
images = torch.from_numpy(digits.images[:600]).permute(0, 3, 1, 2).float() / 255
labels = torch.from_numpy(digits.labels[:600])

print(tapr.check(model, images[:200]))  # what it finds, what it would adapt, what will not work
for method in ("source", "norm", "tent", "pest"):
    adapter = tapr.adapt(model, method)
    right = 0
    for start in range(0, len(images), 200):
        batch = slice(start, start + 200)
        guesses = adapter(images[batch]).argmax(1)
        right += int((guesses == labels[batch]).sum())  # labels only to keep the score
    print(f"{method:6s} {right / len(labels):.1%} of {len(labels)} right")

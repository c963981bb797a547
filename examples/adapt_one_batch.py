"""Adapt on one batch of images and predict it. Run it with `python examples/adapt_one_batch.py`."""

import torch

import tapr

model = tapr.models.load("digits-small")  # trained on printed digits; your nn.Module goes here
digits = tapr.datasets.load("digits")  # handwritten ones
images = torch.from_numpy(digits.images[:200]).permute(0, 3, 1, 2).float() / 255  # in [0, 1]

before = model(images).argmax(1)
adapter = tapr.adapt(model)  # a copy is adapted, the model stays as it is
prediction = adapter.predict(images)  # `adapter(images)` gives the logits alone
after = prediction.logits.argmax(1)

print(f"{prediction.forward // len(images)} forwards an image, {prediction.steps} steps")
print(f"{int((before != after).sum())} of {len(images)} predictions changed")
assert digits.labels is not None
for name, guesses in (("unadapted", before), ("adapted", after)):
    right = (guesses == torch.from_numpy(digits.labels[:200])).float().mean()
    print(f"{name:10s} {right:.1%} right")

"""`tapr glossary`: the words that this package uses, explained."""

from typing import Annotated, NamedTuple

import typer

from tapr.cli import app


class Word(NamedTuple):
    """What a word means here, and what the paper of PEST calls it."""

    meaning: str
    paper: str = ""


WORDS = {
    "adapter": Word(
        "The module that `tapr.adapt(model)` returns. It holds a copy of the model, is called like"
        " the model, and adapts with every batch."
    ),
    "augmentation": Word("A random change to an image, from which views are made.", "μ(x̃ | x)"),
    "batch": Word("The images that are predicted, and adapted to, together.", "x"),
    "batch-norm statistics": Word(
        "The mean and variance of each channel, which batch-norm layers remember from training."
        " After a shift they are wrong, and most methods replace them."
    ),
    "cell": Word("One method on one stream with one seed: the unit of a benchmark."),
    "checkpoint": Word("A file with the weights of a model."),
    "collapse": Word("A failure in which a model predicts the same few classes for every image."),
    "consistency": Word(
        "A loss that is low when the predictions on an image and on its views agree.",
        "L_cons, equation 1",
    ),
    "control": Word(
        "A method with learning rate 0. What the method gains over its control is due to the"
        " gradient, and the rest is due to the statistics."
    ),
    "corruption": Word("A way to damage clean images: noise, blur, fog, JPEG compression, ..."),
    "domain": Word("Images of one kind, e.g. all with fog of severity 5, or one folder.", "domain"),
    "entropy": Word("A loss that is low when predictions are confident.", "L_ent, equation 3"),
    "episodic": Word("The model is reset to the source model before every batch."),
    "feed": Word("Which images update the statistics: all `views`, or only the original ones."),
    "guard": Word(
        "The part of every adapter that rolls back a step which would put a NaN into the model, and"
        " that compares the adapted model with the source model."
    ),
    "health": Word("The verdict of the guard, without labels: `ok`, `watch` or `harm`."),
    "logits": Word("The numbers that a classifier returns, one per class, before the softmax."),
    "method": Word("A way to adapt: `steady`, `tent`, `pest`, ... `tapr methods` lists them."),
    "objective": Word("What a method minimises; it needs no labels.", "L, equation 4"),
    "online": Word("The model stays adapted from one batch to the next.", "online"),
    "order": Word("How the images of a domain follow each other: shuffled, sorted by class, ..."),
    "original image": Word("An image as it came, in contrast to its views.", "x"),
    "preset": Word(
        "All options of a method as its paper states them (`paper`) or as its authors' code sets"
        " them (`released`)."
    ),
    "prior": Word(
        "For the statistics `blend`: how many images the source statistics count for.",
        "N of Schneider et al.",
    ),
    "protocol": Word(
        "How domains follow each other: each on its own, one after another (`continual`), mixed."
    ),
    "recipe": Word("All options of one adapter, as saved states and records keep them."),
    "record": Word("What a benchmark wrote down about a batch: predictions, labels, time."),
    "roll back": Word("To undo a step that the guard refused."),
    "scope": Word("Which parameters a method may change, e.g. `all` or `norm`.", "all parameters"),
    "severity": Word("How strong a corruption is, from 1 to 5.", "severity"),
    "shift": Word("The difference between the images of training and those at test time."),
    "source model": Word("The classifier as it was trained, unadapted.", "f(·, θ)"),
    "spec": Word("A TOML file that describes a benchmark; some come with the package."),
    "state": Word("All that an adapter has learned; `save` writes it and `tapr.load` reads it."),
    "statistics policy": Word(
        "Whose batch-norm statistics are used for a prediction: those of the source, of the batch,"
        " of the stream so far, or a mixture."
    ),
    "step": Word("One forward pass, backward pass and update on a batch.", "SGD iteration"),
    "stream": Word("Batches in the order in which a model meets them."),
    "test-time adaptation": Word(
        "Changing a trained model, or how it is used, by the unlabelled images that it predicts."
    ),
    "variant": Word("A method with some options, e.g. `pest:augmentation=randaugment`."),
    "view": Word("An augmented copy of an image.", "x̃₁, x̃₂"),
    "votes": Word("Which views of an image predict together; by default the original alone."),
}


@app.command()
def glossary(
    word: Annotated[
        str | None, typer.Argument(help="The word to explain.  [default: all words]")
    ] = None,
) -> None:
    """Explain the words that these help texts, the reports and the documentation use.

    Example: `tapr glossary severity`
    """
    from rich.console import Console
    from rich.table import Table

    from tapr.registry import Registry

    known = Registry("word", WORDS)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in [word.lower()] if word else WORDS:
        table.add_row(name, known[name].meaning.replace("`", ""))
    Console().print(table)

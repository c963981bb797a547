"""The names that more than one layer needs; importing them costs nothing, torch least of all."""

from collections.abc import Mapping

# Method -> its class. Every other place takes a method's name from here, or from the class.
METHODS: Mapping[str, str] = {
    "steady": "tapr.methods.steady:Steady",
    "source": "tapr.methods.source:Source",
    "norm": "tapr.methods.norm:Norm",
    "tent": "tapr.methods.tent:Tent",
    "pest": "tapr.methods.pest:PEST",
}

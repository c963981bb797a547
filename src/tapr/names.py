"""The names that more than one layer needs; importing them costs nothing, torch least of all."""

from collections.abc import Mapping

# Method -> its class. Every other place takes a method's name from here, or from the class.
METHODS: Mapping[str, str] = {
    "source": "tapr.methods.source:Source",
    "norm": "tapr.methods.norm:Norm",
    "tent": "tapr.methods.tent:Tent",
    "pest": "tapr.methods.pest:PEST",
    "lame": "tapr.methods.lame:LAME",
    "note": "tapr.methods.note:NOTE",
    "rotta": "tapr.methods.rotta:RoTTA",
    "memo": "tapr.methods.memo:MEMO",
    "rmt": "tapr.methods.rmt:RMT",
    "adacontrast": "tapr.methods.adacontrast:AdaContrast",
    "cotta": "tapr.methods.cotta:CoTTA",
    "t3a": "tapr.methods.t3a:T3A",
}

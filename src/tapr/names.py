"""The names that more than one layer needs; importing them costs nothing, torch least of all."""

from collections.abc import Mapping

# Method -> its class. Every other place takes a method's name from here, or from the class.
METHODS: Mapping[str, str] = {
    "source": "tapr.methods.source:Source",
    "norm": "tapr.methods.norm:Norm",
    "tent": "tapr.methods.tent:Tent",
    "pest": "tapr.methods.pest:PEST",
    "eta": "tapr.methods.eta:ETA",
    "eata": "tapr.methods.eata:EATA",
    "sar": "tapr.methods.sar:SAR",
    "roid": "tapr.methods.roid:ROID",
    "cmf": "tapr.methods.cmf:CMF",
    "deyo": "tapr.methods.deyo:DeYO",
    "rpl": "tapr.methods.rpl:RPL",
    "shot": "tapr.methods.shot:SHOT",
    "rdumb": "tapr.methods.rdumb:RDumb",
    "ttt": "tapr.methods.ttt:TTT",
    "lame": "tapr.methods.lame:LAME",
    "note": "tapr.methods.note:NOTE",
    "rotta": "tapr.methods.rotta:RoTTA",
    "cotta": "tapr.methods.cotta:CoTTA",
    "t3a": "tapr.methods.t3a:T3A",
}

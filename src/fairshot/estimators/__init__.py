"""Every method as an estimator in scikit-learn's conventions, by the name of its class.

    from fairshot.estimators import NCM

    model = NCM(epochs=20).fit(images, labels).partial_fit(five, ["okapi"] * 5)

`fairshot` has the methods of the package too: `from fairshot import NCM`. A method of your own is one as soon
as its file is loaded (`fairshot.methods.plugins.load_plugin`), here by the name of its class.
"""

from __future__ import annotations

from typing import Any

from fairshot.estimators.estimator import MethodEstimator as MethodEstimator
from fairshot.estimators.methods import ALICE as ALICE
from fairshot.estimators.methods import CEC as CEC
from fairshot.estimators.methods import CFSCIL as CFSCIL
from fairshot.estimators.methods import FACT as FACT
from fairshot.estimators.methods import FCIL as FCIL
from fairshot.estimators.methods import NCFSCIL as NCFSCIL
from fairshot.estimators.methods import NCM as NCM
from fairshot.estimators.methods import SAVC as SAVC
from fairshot.estimators.methods import SSS as SSS
from fairshot.estimators.methods import SSSBGMM as SSSBGMM
from fairshot.estimators.methods import TEEN as TEEN
from fairshot.estimators.methods import TOPIC as TOPIC
from fairshot.estimators.methods import BiDist as BiDist
from fairshot.estimators.methods import CEDelta as CEDelta
from fairshot.estimators.methods import PlannedEstimator
from fairshot.methods import methods


def __getattr__(name: str) -> Any:
    """Make the estimator of a method that none is written down for: a new one, or one of a user's file."""
    kind = next((kind for kind in methods().values() if kind.__name__ == name), None)
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = PlannedEstimator if kind.card.knows_future else MethodEstimator
    made = type(name, (base,), {"kind": kind, "__doc__": kind.__doc__, "__module__": __name__})
    globals()[name] = made
    return made

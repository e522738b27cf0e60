"""fairshot: give new classes a fair shot.

Every method as an estimator in scikit-learn's conventions, stores of taught classes, and the network of a
finished run; `fairshot.studies` and `fairshot.reporting` have what is made of several runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairshot.lazy import lazy_names

if TYPE_CHECKING:
    from fairshot.estimators import ALICE as ALICE
    from fairshot.estimators import CEC as CEC
    from fairshot.estimators import CFSCIL as CFSCIL
    from fairshot.estimators import FACT as FACT
    from fairshot.estimators import FCIL as FCIL
    from fairshot.estimators import NCFSCIL as NCFSCIL
    from fairshot.estimators import NCM as NCM
    from fairshot.estimators import SAVC as SAVC
    from fairshot.estimators import SSS as SSS
    from fairshot.estimators import SSSBGMM as SSSBGMM
    from fairshot.estimators import TEEN as TEEN
    from fairshot.estimators import TOPIC as TOPIC
    from fairshot.estimators import BiDist as BiDist
    from fairshot.estimators import CEDelta as CEDelta
    from fairshot.evaluation.embedders import load_embedder as load_embedder
    from fairshot.evaluation.result import Result as Result
    from fairshot.teaching import Store as Store

__getattr__ = lazy_names(__name__, __file__)

"""The contract of models and methods, for bvat's own and for those of other packages.

>>> from bvat.testing import check_method, check_model
>>> check_method("vat")
>>> check_model("sgc")

The checks raise AssertionError.
"""

from bvat.testing.methods import check_method, check_regulariser
from bvat.testing.models import check_model

__all__ = ["check_method", "check_model", "check_regulariser"]

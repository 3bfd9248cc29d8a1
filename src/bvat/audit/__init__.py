"""How fragile each prediction is: the worst case at a given length, and the smallest change of its class."""

from bvat.audit.audit import audit, sample_nodes, smallest_perturbation
from bvat.audit.certify import Certificate, certify
from bvat.audit.result import Audit

__all__ = ["Audit", "Certificate", "audit", "certify", "sample_nodes", "smallest_perturbation"]

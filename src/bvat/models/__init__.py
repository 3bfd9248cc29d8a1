"""Models, each split into ``project`` (the linear map of the features) and ``propagate`` (the rest)."""

from bvat.models.base import Masks, ProjectedModel, linearize
from bvat.models.gcn import GCN

__all__ = ["GCN", "Masks", "ProjectedModel", "linearize"]

from __future__ import annotations

from pathlib import Path
from typing import Any

NODES = "id,label,a,b\nn1,cat,1,0.5\nn2,dog,2,0\nn3,cat,0,1\nn4,dog,3,2\nn5,,1,1\n"
EDGES = "source,target\nn1,n2\nn2,n3\nn3,n4\nn4,n5\n"


def write(folder: Path, nodes: Any = NODES, edges: Any = EDGES, **others: Any) -> Path:
    """Write a folder; bytes are written as they are, None is left out, ``features__npz`` is a file name."""
    folder.mkdir(exist_ok=True)
    for name, content in {"nodes.csv": nodes, "edges.csv": edges, **others}.items():
        if content is not None:
            data = content if isinstance(content, bytes) else content.encode()
            (folder / name.replace("__", ".")).write_bytes(data)
    return folder

"""Draw which package imports which: python docs/pictures/imports.py

The import statements are read from the syntax trees of src/bvat, including those inside functions and under
TYPE_CHECKING. Arrows point from the importing to the imported package; an arrow that follows from others is
left out, and an import against the order of the packages is drawn in red.
"""

import ast
from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "bvat"

ORDER = {
    "errors": "errors for the user",
    "plugins": "rows of other packages",
    "engine": "how numbers are computed",
    "graph": "Graph and receptive fields",
    "data": "data sets and readers",
    "parts": "graphs in parts",
    "models": "one file per model",
    "perturb": "regularisers",
    "baselines": "other classifiers",
    "training": "settings, loop",
    "store": "run folders, processes",
    "tuning": "search for settings",
    "inference": "predictions",
    "audit": "fragility",
    "trust": "what to believe of it",
    "estimator": "NodeClassifier",
    "paper": "tables and figures",
    "bench": "measurements",
    "report": "pages and charts",
    "runs": "whole runs, in folders",
    "cli": "commands",
}
"""The packages from the lowest to the highest: each may import only those before it."""

Imports = dict[str, set[str]]
Point = tuple[float, float]


def read_imports(source: Path = SOURCE) -> Imports:
    """Return module -> imported modules of the same package; a package stands for its ``__init__``."""
    files = {_module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    imports = {}
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        imports[name] = set(_imported(ast.parse(path.read_text("utf-8")), package, files)) - {name}
    return imports


def _module_name(path: Path, source: Path) -> str:
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.AST, package: str, known: Iterable[str]) -> Iterator[str]:
    """Yield the known modules that a syntax tree imports: by statement or by a literal ``import_module``."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            names += [name if (name := f"{base}.{alias.name}") in known else base for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names += [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    yield from (name for name in names if name in known)


def room_of(module: str) -> str:
    """Return the package that a module is in; for a module at the top level, its own name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def room_imports(imports: Imports) -> Imports:
    """Return package -> imported packages, of those in ``ORDER``."""
    rooms: dict[str, set[str]] = {room_of(name): set() for name in imports if room_of(name) in ORDER}
    for name, targets in imports.items():
        if room_of(name) in rooms:
            rooms[room_of(name)] |= {room_of(target) for target in targets} & rooms.keys()
    return {room: targets - {room} for room, targets in rooms.items()}


def reduced(edges: Imports) -> Imports:
    """Leave out the edges of an acyclic graph that follow from the others."""
    below: dict[str, set[str]] = {}
    for room in sorted(edges, key=list(ORDER).index):
        below[room] = edges[room].union(*(below[target] for target in edges[room]))
    return {room: {t for t in to if not any(t in below[other] for other in to)} for room, to in edges.items()}


WIDTH, HEIGHT, GAP, LANE, MARGIN = 168, 46, 26, 10, 24
LEVEL = HEIGHT + 58


def layout(edges: Imports) -> tuple[dict[str, tuple[float, int]], list[list[str]]]:
    """Place the packages in layers, and route edges over several layers through lanes between the boxes.

    Returns the centre and layer of each box and lane, and for each edge its box, lanes and box.
    """
    level: dict[str, int] = {}
    for room in sorted(edges, key=list(ORDER).index):
        level[room] = max((level[target] + 1 for target in edges[room]), default=0)
    layers: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for room in sorted(edges, key=list(ORDER).index):
        layers[level[room]].append(room)
    routes: list[list[str]] = []
    for room, targets in sorted(edges.items()):
        for target in sorted(targets):
            lanes = {k: f"{room}>{target}@{k}" for k in range(level[room] - 1, level[target], -1)}
            for k, lane in lanes.items():
                layers[k].append(lane)
            routes.append([room, *lanes.values(), target])
    links: dict[str, set[str]] = {name: set() for layer in layers for name in layer}
    for route in routes:
        for a, b in pairwise(route):
            links[a].add(b)
            links[b].add(a)
    centre: dict[str, float] = {}
    for layer in layers:
        _spread(layer, centre, {name: float(k) for k, name in enumerate(layer)})
    for sweep in range(24):  # move each box and lane towards the mean of its neighbours in the next layer
        for k in range(len(layers)) if sweep % 2 else reversed(range(len(layers))):
            near = set(layers[k - 1] if sweep % 2 and k else layers[min(k + 1, len(layers) - 1)])
            wanted = {}
            for name in layers[k]:
                places = [centre[other] for other in links[name] & near] or [centre[name]]
                wanted[name] = sum(places) / len(places)
            layers[k].sort(key=lambda name: (wanted[name], name))
            _spread(layers[k], centre, wanted)
    return {name: (centre[name], k) for k, layer in enumerate(layers) for name in layer}, routes


def _spread(layer: list[str], centre: dict[str, float], wanted: dict[str, float]) -> None:
    """Set the centres of a layer near the wanted ones, in this order and without overlap."""
    half = {name: (WIDTH if name in ORDER else LANE) / 2 for name in layer}
    right = float("-inf")
    for name in layer:
        centre[name] = max(wanted[name], right + half[name])
        right = centre[name] + half[name] + GAP
    shift = sum(wanted[name] - centre[name] for name in layer) / len(layer)
    for name in layer:
        centre[name] += shift


def draw(imports: Imports) -> str:
    """Return the picture as SVG."""
    rooms = room_imports(imports)
    rooms.pop("errors", None)  # everything may import it, and drawing that would hide the rest
    rank = {room: k for k, room in enumerate(ORDER)}
    down = {room: {t for t in to if 0 < rank[t] < rank[room]} for room, to in rooms.items()}
    against = sorted((room, t) for room, to in rooms.items() for t in to if rank[t] > rank[room])
    place, routes = layout(reduced(down))
    half = {name: (WIDTH if name in ORDER else LANE) / 2 for name in place}
    left = min(x - half[name] for name, (x, _) in place.items()) - MARGIN
    width = max(x + half[name] for name, (x, _) in place.items()) + MARGIN - left
    top = max(k for _, k in place.values())
    height = top * LEVEL + 2 * HEIGHT + 2 * MARGIN

    def point(name: str, side: float) -> Point:
        """Return a point on the vertical axis of a box or lane: 0 is its upper edge, 1 its lower edge."""
        x, k = place[name]
        return x - left, MARGIN + (top - k) * LEVEL + HEIGHT * side

    parts = []
    for first, *lanes, last in routes:
        through = [point(lane, side) for lane in lanes for side in (0, 1)]
        parts.append(_path([point(first, 1), *through, point(last, 0)], "edge"))
    for room in sorted(rooms):
        (x, y), (_, middle) = point(room, 0), point(room, 0.5)
        box = f'x="{x - WIDTH / 2:.1f}" y="{y:.1f}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(f'<rect {box} rx="6"/>')
        parts.append(f'<text x="{x:.1f}" y="{middle - 3:.1f}" class="name">{escape(room)}</text>')
        parts.append(f'<text x="{x:.1f}" y="{middle + 14:.1f}">{escape(ORDER[room])}</text>')
    parts += [_path([point(source, 0), point(target, 1)], "against") for source, target in against]
    y = height - MARGIN - HEIGHT / 2
    parts.append(f'<text x="{width / 2:.1f}" y="{y:.1f}">Every package may also import bvat.errors.</text>')
    return TEMPLATE.format(width=width, height=height, body="\n".join(parts))


def _path(points: list[Point], kind: str) -> str:
    """Draw a curve that is vertical at each of its points."""
    (x, y), rest = points[0], points[1:]
    commands = [f"M{x:.1f} {y:.1f}"]
    for u, v in rest:
        middle = (y + v) / 2
        commands.append(f"C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v:.1f}")
        x, y = u, v
    return f'<path class="{kind}" d="{" ".join(commands)}" marker-end="url(#{kind}-head)"/>'


TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">
<title>Imports between the packages of bvat; arrows point from the importing to the imported package</title>
<style>
.page {{ fill: #ffffff; stroke: none; }}
rect {{ fill: #eef4fa; stroke: #0072b2; }}
text {{ font: 12px sans-serif; fill: #444444; text-anchor: middle; }}
.name {{ font: bold 14px sans-serif; fill: #111111; }}
path {{ fill: none; stroke: #777777; stroke-width: 1.3; }}
path.against {{ stroke: #c0182b; stroke-width: 1.8; }}
marker {{ overflow: visible; }}
marker path {{ fill: #777777; stroke: none; }}
#against-head path {{ fill: #c0182b; }}
</style>
<defs>
<marker id="edge-head" orient="auto"><path d="M-8 -4 L0 0 L-8 4 z"/></marker>
<marker id="against-head" orient="auto"><path d="M-6 -3 L0 0 L-6 3 z"/></marker>
</defs>
<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="8"/>
{body}
</svg>
"""


if __name__ == "__main__":
    (HERE / "imports.svg").write_text(draw(read_imports()), "utf-8")

"""Pages and charts, drawn by matplotlib."""

import logging

_log = logging.getLogger("matplotlib")
_level = _log.level
_log.setLevel(logging.ERROR)  # its first import reports that it looks for fonts
import matplotlib.font_manager  # noqa: E402, F401

_log.setLevel(_level)

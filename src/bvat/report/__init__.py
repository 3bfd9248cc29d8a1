"""Pages that show results: self-contained HTML without scripts, and figures for papers."""

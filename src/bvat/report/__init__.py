"""Pages that show results: self-contained HTML without scripts, and charts as SVG."""

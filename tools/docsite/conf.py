"""Settings of Sphinx, which makes the site from what docsite.build lays out."""

project = "Gorbit"
root_doc = "index"
extensions = ["myst_parser"]
# Headings have the names that the forge gives them, which links use.
myst_heading_anchors = 6
highlight_language = "text"
# Quotation marks and dashes are often those of values and flags.
smartquotes = False
# Examples leave parts of JSON out.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False

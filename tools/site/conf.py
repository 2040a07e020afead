"""Settings of Sphinx. tools/site/build.py puts the sources together and calls it."""
import gc
import os
import pathlib

# The trees of pages are millions of objects that stay alive. With Python's defaults a collection of garbage often looks at all of them.
gc.set_threshold(100_000, 20, 100)

project = "PyFlame"
author = "The PyFlame authors"
copyright = "the PyFlame authors, Apache License 2.0"
release = version = os.environ.get("PYFLAME_SITE_VERSION", "")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_static"]
myst_heading_anchors = 5
myst_links_external_new_tab = False
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]  # blocks show logs and tables with the colour of the nearest language
default_role = None
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 100
add_module_names = True

html_theme = os.environ.get("PYFLAME_SITE_THEME", "pydata_sphinx_theme")
html_title = "PyFlame"
html_static_path = ["_static"]
html_css_files = ["pyflame.css"]
html_js_files = [("search_words.js", {"priority": 100})]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(pathlib.Path(__file__).parent / "search_order.js")
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
templates_path = []
if html_theme == "pydata_sphinx_theme":
    html_theme_options = {
        "logo": {"text": "PyFlame"},
        "header_links_before_dropdown": 7,
        "navigation_with_keys": False,
        "navbar_align": "left",
        "show_nav_level": 1,
        "collapse_navigation": True,
        "navigation_depth": 2,
        "secondary_sidebar_items": ["page-toc"],
        "footer_start": ["copyright"],
        "footer_end": [],
        "pygments_light_style": "a11y-high-contrast-light",
        "pygments_dark_style": "a11y-high-contrast-dark",
        "back_to_top_button": False,
    }
    if os.environ.get("PYFLAME_SITE_VERSIONS"):  # several versions are served, each in a folder; tools/site/versions.py writes the list beside them
        html_theme_options["switcher"] = {"json_url": "../versions.json", "version_match": version}
        html_theme_options["check_switcher"] = False  # the list is not there yet
        html_theme_options["show_version_warning_banner"] = True
        html_theme_options["navbar_start"] = ["navbar-logo", "version-switcher"]

"""Where normfuse meets other tools; each module needs its tool only when it is used."""

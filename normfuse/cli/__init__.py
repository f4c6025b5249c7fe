"""The command line: arguments in, the API does the work, the result is printed. No logic.

entry      words -> command -> exit code          parse      option texts -> Options
options    what each option is called             standard   standard input and output
results    summary, report files, progress        fuse, inspect, verify: one module a command
"""

from normfuse.cli.entry import main, run

__all__ = ["main", "run"]

"""What a run has to say: the record itself, for a terminal, and for programs.

Light to import: rich is only loaded when something is printed.
"""

from normfuse.report.json_report import fleet_schema, schema
from normfuse.report.record import SCHEMA_VERSION, Report, Site, Status

__all__ = ["SCHEMA_VERSION", "Report", "Site", "Status", "fleet_schema", "schema"]

"""Records to tables, figures and pages. Imports no torch."""

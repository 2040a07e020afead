// The behaviour of the reports.

-- ends by: script this table is read-only
table.insert(string, 1)

-- ends by: script this table is read-only
rawset(string, "rep", nil)

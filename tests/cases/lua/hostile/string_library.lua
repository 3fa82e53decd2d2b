-- ends by: script this table is read-only: `rep` cannot be set
string.rep = nil

extend "base_cycle.lua"
return {}

extend "bas.toml"
return {}

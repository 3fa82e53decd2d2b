-- ends by: script a set of a pattern has more than 1024 bytes
return (("a"):rep(500000)):find("^[" .. ("b"):rep(500000) .. "a]*")

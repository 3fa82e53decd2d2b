-- ends by: memory
return string.pack("c" .. (1 << 30), "")

-- ends by: script require: "../../x" is not the name of a file in this folder (letters, digits, _ and -)
require "../../x"

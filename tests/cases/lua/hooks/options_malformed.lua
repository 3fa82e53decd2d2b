return {
  options = {
    a = {type = "integr"},
    b = {type = "number", default = "x"},
    c = {type = "number", mn = 1},
    d = 3,
  },
}

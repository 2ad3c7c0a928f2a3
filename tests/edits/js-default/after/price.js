function withTax(price, rate = 0.2) {
  return price + price * rate;
}

module.exports = { withTax };

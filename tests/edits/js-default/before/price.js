function withTax(price, rate) {
  return price + price * rate;
}

module.exports = { withTax };

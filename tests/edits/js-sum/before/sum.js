function sum(numbers) {
  let total = 1;
  for (const number of numbers) {
    total += number;
  }
  return total;
}

module.exports = { sum };

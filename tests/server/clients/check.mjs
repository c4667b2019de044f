// What the scripts share: the server's address, and a check that ends the script with a reason.
export const url = process.argv[2];

export function check(condition, what, found) {
  if (condition) return;
  console.error(`failed: ${what}; found ${JSON.stringify(found)}`);
  process.exit(1);
}

// Loads the page's script; where a network that changes under it cuts that short, loads all anew.

import("./main.js").catch((error) => {
  setTimeout(() => location.reload(), 1000);
  throw error;
});

document.getElementById("app").textContent = "";

// A store from Node, by better-sqlite3: writes, rolls back, opens again, verifies.
//
//   node.js LIBRARY FILE       LIBRARY is libflagstone_sqlite, with its folder and without .so
//
// better-sqlite3 does not read URIs, so that the VFS is made the default one.
const assert = require('node:assert');
const Database = require('better-sqlite3');

const [library, path] = process.argv.slice(2);

// Once a process: the library stays loaded when this connection is closed.
const loader = new Database(':memory:');
loader.loadExtension(library, 'flagstone_sqlite_default_init');
loader.close();

let db = new Database(path);
db.exec('CREATE TABLE IF NOT EXISTS t (language, number, text)');
const insert = db.prepare("INSERT INTO t VALUES ('node', ?, ?)");
db.transaction(() => {
  for (let number = 1; number <= 1000; number++) {
    insert.run(number, String(number).padStart(500, '0'));
  }
})();
const undone = db.transaction(() => {
  db.exec('DELETE FROM t');
  throw new Error('undone');
});
assert.throws(undone, /undone/);
db.close();

db = new Database(path, { fileMustExist: true });
const found = db.prepare(
  "SELECT count(*) AS rows, sum(number) AS sum, sum(length(text)) AS bytes FROM t WHERE language = 'node'",
).get();
assert.deepStrictEqual(found, { rows: 1000, sum: 500500, bytes: 500000 });
assert.strictEqual(db.pragma('integrity_check', { simple: true }), 'ok');
db.close();

// In place of react-custom-scrollbars-2, whose default export esbuild cannot find from .mjs files.
export default ({ children }) => <div style={{ overflow: 'hidden' }}>{children}</div>;
